"""Media: read headers (probe) and work on pixels (picture). One owner for each heavy library."""
