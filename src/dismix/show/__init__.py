"""Pictures and pages: where people would rather look than read."""
