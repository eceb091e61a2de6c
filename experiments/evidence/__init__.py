"""From results to what is said of them: claims, the rules of their verdicts, pages, studies."""
