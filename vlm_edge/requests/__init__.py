"""Requests: find the media of a request body, and write new media into it. One module a dialect."""
