"""lakemirror: any program that can write a file gets live Delta tables."""
