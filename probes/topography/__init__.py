"""Are tasks that are close to each other given codes that are close to each other?"""
