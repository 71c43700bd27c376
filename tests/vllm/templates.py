"""Templates: chat templates as models of several makers have them, and pieces to put others together from."""

from collections.abc import Iterator
from itertools import product

PLACEHOLDER = "<|vision_start|><|image_pad|><|vision_end|>"

# ChatML with tools, thinking and parts, as Qwen's.
PARTS = """\
{%- if tools %}
{{- '<|im_start|>system\\n# Tools' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role != 'system' %}
{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.name %}{{- '(' + message.name + ')' }}{%- endif %}
{%- if message.tool_call_id %}{{- '#' + message.tool_call_id }}{%- endif %}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
{%- if message.content is string %}
{{- message.content }}
{%- else %}
{%- for content in message.content %}
{%- if content.type == 'image' or 'image' in content or 'image_url' in content %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif 'text' in content %}
{{- content.text }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}
{%- if enable_thinking %}{{- '<think>' }}{%- endif %}
{%- if reasoning_effort %}{{- reasoning_effort }}{%- endif %}
{%- endif %}
{%- for document in documents or [] %}{{- document.title }}{%- endfor %}
"""

# One text a message, as LLaVA's.
ONE_PIECE = """\
{{ eos_token }}{% for message in messages %}
{% if message.role == 'user' %}
{{ 'USER: ' + message['content'] | trim + '\\n' }}
{% else %}
{{ message['role'].upper() + ': ' + message['content'] }}
{% endif %}
{% if message.tool_calls %}
{{ message.tool_calls | tojson(indent=4) }}
{% endif %}
{% endfor %}
{{ tools | tojson(indent=2) }}
{% if add_generation_prompt %}ASSISTANT:{% endif %}"""

# Turns that must alternate, the system's words in the first, as Gemma's.
ALTERNATING = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = (messages[0]['content'] if messages[0]['content'] is string
        else messages[0]['content'][0]['text']) + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("roles must alternate") }}
    {%- endif -%}
    {{ '<turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' + (first if loop.first) }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {%- for item in message['content'] -%}
            {{ '<|image_pad|>' if item['type'] == 'image' else item['text'] | trim }}
        {%- endfor -%}
    {%- endif -%}
    {{ '</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}
"""

# One that knows developers.
DEVELOPERS = """\
{% for m in messages %}{{ 'D:' if m.role == 'developer' }}[{{ m.role }}]
{%- for c in m.content %}{{ '<|image_pad|>' if c.type == 'image' else c.text }}{% endfor %}
{% endfor %}{{ 'A:' if add_generation_prompt }}"""

TEMPLATES = (PARTS, ONE_PIECE, ALTERNATING, DEVELOPERS)

LOOPS = (
    "{% for m in messages %}INNER{% endfor %}",
    "{% for m in messages[1:] %}INNER{% endfor %}",
    "{% for m in messages | list %}INNER{% endfor %}",
    "{% for m in messages if m.role %}INNER{% endfor %}",
    "{% for m in messages + [] %}INNER{% endfor %}",
    "{% for m in others %}INNER{% endfor %}",
    "{% for i, m in messages %}INNER{% endfor %}",
    "{% set m = messages[0] %}INNER",
    "{% set all = messages[1:] %}{% set all = all %}{% for m in all %}INNER{% endfor %}",
    "{% set all, n = messages, 1 %}{% for m in all %}INNER{% endfor %}",
    "{% set ns = namespace(all=messages) %}{% for m in ns.all %}INNER{% endfor %}",
    "{% set ns = namespace() %}{% set ns.all = messages %}{% for m in messages %}INNER{% endfor %}",
)
INNER = (
    "{{ m.content }}",
    "{% for c in m.content %}{% endfor %}",
    "{% for c in m['content'] | list %}{% endfor %}",
    "{% for c in m.get('content') %}{% endfor %}",
    "{% for c in m.content or [] %}{% endfor %}",
    "{% for a, b in m.content %}{% endfor %}",
    "{% for c in m.tool_calls %}{% endfor %}",
    "{% set content = m.content %}{% for c in content %}{% endfor %}",
    "{% set other = m.content %}{% for c in other %}{% endfor %}",
    "{{ say(m.content) }}",
    "{{ say(x=m.content) }}",
    "{{ say(1, m['content'] | trim) }}",
    "{{ say(m) }}",
)
MACROS = (
    "",
    "{% if %}",
    "{% for c in content %}{% endfor %}",
    "{% macro say(x, y=1) %}{% for c in x %}{% endfor %}{% endmacro %}",
    "{% macro say(x) %}{{ x }}{% endmacro %}",
    "{% macro say(m) %}{% for c in m.content %}{% endfor %}{% endmacro %}",
    "{% macro say(x, content) %}{% for c in content %}{% endfor %}{% endmacro %}",
    "{% macro say(x) %}{% for a, b in x %}{% endfor %}{% endmacro %}",
    "{% generation %}{% endgeneration %}{% for t in tools %}{% break %}{% endfor %}",
)


def pieced() -> Iterator[str]:
    """Templates of every way to go through messages and their content."""
    for macro, loop, inner in product(MACROS, LOOPS, INNER):
        yield macro + loop.replace("INNER", inner)
