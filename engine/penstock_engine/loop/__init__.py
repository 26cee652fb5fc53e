"""The thread of the engine: schedules steps, runs them, and reports their events."""
