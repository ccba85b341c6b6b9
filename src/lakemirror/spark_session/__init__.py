"""The one Spark session, and how it starts fast and quietly: Java, jars, class-data archive."""
