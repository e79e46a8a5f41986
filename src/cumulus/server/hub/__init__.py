"""The hub: changes of views, computed once and encoded once for all who subscribe to the same selection of rows."""
