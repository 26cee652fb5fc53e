"""The reader of pages: what it finds, and what it refuses."""

import pytest
from e2e.documentation.code_blocks import CodeBlock, UnclearPage, read_blocks

PAGE = """\
# A page

```bash
kubectl get pods
```

```text
No resources found
```

1. A list with a block:

   ```yaml
   spec:
     replicas: 2
   ```

<!-- not run: needs an image of your own -->
```bash
kubectl apply -f mine.yaml
```
"""


def test_blocks_have_line_language_text_and_reason() -> None:
    assert read_blocks(PAGE) == [
        CodeBlock(3, "bash", "kubectl get pods\n", None, False),
        CodeBlock(7, "text", "No resources found\n", None, True),
        CodeBlock(13, "yaml", "spec:\n  replicas: 2\n", None, False),
        CodeBlock(19, "bash", "kubectl apply -f mine.yaml\n", "needs an image of your own", False),
    ]


def test_a_marked_block_and_output_are_not_run() -> None:
    assert [block.is_run for block in read_blocks(PAGE)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```\nkubectl get pods\n```\n", "line 1: the fence has to name its language"),
        ("```sh\nkubectl get pods\n```\n", "line 1: the fence has to name its language"),
        ("```bash\nkubectl get pods\n", "line 1: the code block is not closed"),
        ("<!-- not run: -->\n```bash\ntrue\n```\n", "line 1: the marker gives no reason"),
        ("<!-- not run -->\n```bash\ntrue\n```\n", "line 1: the marker gives no reason"),
        ("<!-- not run: slow -->\n\n```bash\ntrue\n```\n", "not directly above a code block"),
        ("<!-- not run: slow -->\n", "not directly above a code block"),
        ("Run this:\n\n    kubectl get pods\n", "line 3: an indented code block"),
        ("- Run this:\n\n      kubectl get pods\n", "line 3: an indented code block"),
    ],
)
def test_an_unclear_page_is_refused(page: str, problem: str) -> None:
    with pytest.raises(UnclearPage, match=problem):
        read_blocks(page)


def test_a_paragraph_of_a_list_is_no_code() -> None:
    assert read_blocks("1. One\n\n   goes on here.\n\n   - two\n\n     goes on here.\n") == []
