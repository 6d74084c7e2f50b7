"""The templates of each family. A new family is one row here and its templates."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "row": ("row.cu.jinja", "plan.py.jinja"),
    "map": ("map.cu.jinja", "plan.py.jinja"),
    "list": ("map.cu.jinja", "plan.py.jinja"),
    "body": ("body.cu.jinja", "plan.py.jinja"),
}
