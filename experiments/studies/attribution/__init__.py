"""Which codes do the answers of trained models hang on? One model of each kind and task."""
