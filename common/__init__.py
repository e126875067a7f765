"""What every folder may import: files, object stores, errors, text. It imports nothing of ours."""
