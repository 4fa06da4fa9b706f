"""What a release needs: packages that are built and checked, and the steps to publish them."""
