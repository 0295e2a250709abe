"""`hotset demo`: what hotset brings, measured on this machine, against a real S3 server, in less than a minute.

Needs the extra ``demo``. Leaves nothing behind but a chart and the numbers.
"""
