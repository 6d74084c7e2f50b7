"""What plans of one family add: arguments, launch geometry, selection."""
