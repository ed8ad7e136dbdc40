"""What runs the blocks of code in our pages."""
