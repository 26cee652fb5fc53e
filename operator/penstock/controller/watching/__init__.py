"""Local copies of Kubernetes objects, kept current by watches."""
