"""What operators look at: health, metrics, the description of the REST interface, the page."""
