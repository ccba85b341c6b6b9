"""Starts the one Spark session: Java, jars, class-data archive."""
