"""The whole story on drawn pictures, on a CPU in minutes: `dismix demo`."""
