"""OpenAI's Responses API: requests translated to chat requests, and chat answers back."""
