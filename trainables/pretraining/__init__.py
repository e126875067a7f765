"""In: text, a folder, or a model's name. Out: a folder of pretrained weights with a checksum."""
