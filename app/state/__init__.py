"""What has been chosen: in the sidebar, by clicks, in the URL."""
