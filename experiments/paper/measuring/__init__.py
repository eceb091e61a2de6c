"""What do runs say? What several figures and tables measure, draw and put into words."""
