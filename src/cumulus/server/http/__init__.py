"""HTTP: the routes, and what goes over them."""
