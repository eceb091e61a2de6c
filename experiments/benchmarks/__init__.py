"""How fast is it? One command per question, each against something measured in the same sitting."""
