"""What is learned of engines, pods and requests, and the capacity of a replica that follows from it."""
