"""Anthropic's Messages API: requests translated to chat requests, and chat answers back."""
