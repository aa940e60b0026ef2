"""The explorer: see and steer severity and appearance of a trained generator in a browser.

`session` holds all logic and knows nothing of the page; `page` lays it out with Gradio and
`server` guards what is served.
"""
