"""Invoice: what is asked of the model, in words that never change, and how its answer is read."""

import datetime
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

# The model is held to these while it writes. Short ones bound the answer, and so `max_tokens`.
_AMOUNT = {"type": "string", "pattern": r"^-?[0-9]{1,12}(\.[0-9]{1,3})?$"}
_CURRENCY = {"type": "string", "pattern": "^[A-Z]{3}$"}
_ISSUER = {"type": "string", "minLength": 1, "maxLength": 80}


class Invoice(BaseModel):
    """What is taken from an invoice. The descriptions are read by the model, and by clients in /docs."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", str_strip_whitespace=True)

    amount: Annotated[Decimal, WithJsonSchema(_AMOUNT)] = Field(
        max_digits=15, decimal_places=3, description='the total to pay, taxes included, as a decimal number: "1234.50"'
    )
    currency: Annotated[str, WithJsonSchema(_CURRENCY)] = Field(
        pattern="^[A-Z]{3}$", description='the currency of the amount in three letters of ISO 4217: "EUR"'
    )
    issuer: Annotated[str, WithJsonSchema(_ISSUER)] = Field(
        min_length=1, max_length=80, description="the name of the company or person that asks for the money"
    )
    date: datetime.date = Field(description='the day the invoice was issued, in ISO 8601: "2026-01-31"')


class InvalidAnswer(Exception):
    """An answer that is no invoice. `wrong`: the fields that are missing or wrong; none where it is no JSON at all."""

    def __init__(self, wrong: Iterable[str]) -> None:
        self.wrong = sorted(set(wrong) & Invoice.model_fields.keys())
        super().__init__(f"missing or wrong: {', '.join(self.wrong)}" if self.wrong else "it is not the JSON asked for")


def read(answer: str) -> Invoice:
    """Raises InvalidAnswer."""
    try:
        return Invoice.model_validate_json(answer)
    except ValidationError as error:
        raise InvalidAnswer(f"{one['loc'][0]}" for one in error.errors() if one["loc"]) from None


def _fields(names: Iterable[str]) -> str:
    return "\n".join(f"- {name}: {Invoice.model_fields[name].description}" for name in names)


# The same bytes at the head of every prompt, so that vLLM keeps what it has computed for them. All of it stands in the
# system message: some chat templates move the pictures before the text of their own message.
_SYSTEM = f"""\
You read invoices and receipts. The pictures are the pages of one document, in order. Take from it:
{_fields(Invoice.model_fields)}
Take only what is written there. Answer with one JSON object of these four keys and nothing else."""

RESPONSE_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "invoice", "strict": True, "schema": Invoice.model_json_schema()},
}


def question(document_url: str) -> list[dict[str, Any]]:
    """The messages that ask about a document. What never changes stands first, the pages last."""
    pages = {"type": "image_url", "image_url": {"url": document_url}}
    text = {"type": "text", "text": "The document:"}
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": [text, pages]}]


def correction(answer: str, error: InvalidAnswer) -> list[dict[str, Any]]:
    """The messages to add after an answer that is no invoice."""
    wrong = error.wrong or Invoice.model_fields
    note = f"That is not valid: {error}.\n{_fields(wrong)}\nAnswer again, with the whole JSON object and nothing else."
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": note}]
