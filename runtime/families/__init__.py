"""What each family's plans add: arguments, launch geometry, selection."""
