"""Producing and consuming by the same requests that every client of a broker sends."""
