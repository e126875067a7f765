"""What people have as tables: files, folders, databases and servers of other tools, each by a reader of its own."""
