"""The templates of each family. A new family is one row here and its templates."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "row": ("row.cu.jinja", "row.py.jinja"),
    "map": ("map.cu.jinja", "map.py.jinja"),
    "body": ("body.cu.jinja", "body.py.jinja"),
}
