"""Where does it live? The codes that one answer hangs on, laid over its problem."""
