"""Filling: who fetches what, in which order, once.

`Agenda` (pure) says what comes next, `AdaptiveLimit` (pure) how many requests run at once, `Engine` runs them in threads
against one snapshot, and `FillService` is the engine together with listing and publishing. The same service serves the
command line in its own process (`FillService` directly) and readers through a process of its own (`FillClient`, which
starts `hotset.fill.process`, a program that never forks and ends with its parent).
"""
