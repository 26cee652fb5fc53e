"""Models in tar archives, such as the layers of images."""
