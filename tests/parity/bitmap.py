"""The part of the package bitmap that the suite of tini needs."""


class BitMap:
    def __init__(self, text):
        self.text = text

    @classmethod
    def fromstring(cls, text):
        return cls(text)

    def nonzero(self):
        return [n for n, bit in enumerate(reversed(self.text)) if bit == "1"]
