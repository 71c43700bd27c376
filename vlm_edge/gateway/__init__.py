"""Gateway: our own server before the backends. Needs the extra `gateway`."""
