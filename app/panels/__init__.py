"""What stands beside the map: a selection and its list, or one problem."""
