"""Vocabularies: tokenizers of two makes, trained here on the spot, in which marks run into the text beside them."""

from collections.abc import Sequence

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from tests.samples import ROOT

WORDS = 1_200
GPT_2 = r"'s|'t| ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # as Qwen's, Llama 3's

LINE_BREAKS = ["\n" * number for number in range(1, 32)]


def bytewise(special: Sequence[str]) -> str:
    """tokenizer.json of a vocabulary of bytes: punctuation takes the line breaks behind it along."""
    encoder = Encoder(BPE())
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(GPT_2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    encoder.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(vocab_size=WORDS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    return _with(encoder, trainer, special)


def piecewise(special: Sequence[str]) -> str:
    """tokenizer.json of a vocabulary of pieces, as Gemma's: runs of line breaks are one token each."""
    encoder = Encoder(BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    encoder.normalizer = normalizers.Replace(" ", "▁")
    encoder.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    fallback = [f"<0x{number:02X}>" for number in range(256)]
    trainer = BpeTrainer(vocab_size=WORDS, special_tokens=["<unk>", *fallback], show_progress=False)
    return _with(encoder, trainer, special, LINE_BREAKS)


def _with(encoder: Encoder, trainer: BpeTrainer, special: Sequence[str], whole: Sequence[str] = ()) -> str:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines(keepends=True)
    marks = [f"{mark}\n" for mark in ("<image>", "(<image>./</image>)", "<|image_1|>", "<|image_12|>")]
    encoder.train_from_iterator([*lines, *(marks * 50)], trainer)
    encoder.add_tokens([AddedToken(one, normalized=False) for one in whole])
    encoder.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in ("<s>", "</s>", *special)])
    return str(encoder.to_str())
