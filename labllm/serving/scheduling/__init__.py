"""Scheduling laddered: the decisions of lab 11, each as rungs that serve one trace on a virtual clock.

`chunks` cuts prompts, `chats` keeps beginnings, `pools` runs out of blocks, `lines` chooses who is next; `virtual` is
what they share, and `felt` what a single user notices.
"""
