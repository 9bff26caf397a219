"""Plans and findings as text, Markdown, HTML, JSON and SARIF: a file a format."""
