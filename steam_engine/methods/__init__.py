"""Ways to make a model follow an edit, all of one shape (`base.Method`), so that they can be compared."""
