"""Sources of documents: text files, JSON lines, tables, datasets, standard input."""
