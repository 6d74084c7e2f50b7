"""Matrix products: a sum of products of two arrays, and a program that makes outputs of it."""
