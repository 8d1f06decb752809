"""Vectors lie as those of texts do, and are the same for the same seed."""

from __future__ import annotations

import numpy as np

from loadtest.memory.notes import DIMS, KnownVectors, Texts, Topics


def test_vectors_are_clustered_of_unit_length_and_those_of_a_seed() -> None:
    topics = Topics(7)
    vectors = topics.draw("large", 500, everything=True)
    questions = topics.draw("large", 50, 1, everything=True)
    assert (vectors.shape, vectors.dtype) == ((500, DIMS), np.float32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (vectors == Topics(7).draw("large", 500, everything=True)).all()
    assert not (vectors == Topics(8).draw("large", 500, everything=True)).any()
    nearest = np.sort(questions @ vectors.T, axis=1)[:, ::-1]
    # Uniform ones would have .18 and 0: no question would have an answer.
    assert 0.4 < np.median(nearest[:, 0]) < 0.8
    assert np.median(nearest[:, 250]) < 0.3


def test_a_small_tenant_talks_about_few_topics() -> None:
    topics = Topics(7)
    small, large = topics.draw("tenant-1", 200), topics.draw("large", 200, everything=True)
    assert (small @ small.T).mean() > 1.2 * (large @ large.T).mean()


def test_no_two_texts_are_the_same_and_a_vector_is_known_until_it_is_forgotten() -> None:
    texts, known = Texts(7), KnownVectors(7)
    made = [texts.note("a", str(number)).value["text"] for number in range(300)]
    assert len(set(made)) == 300
    known.learn(made[:2], Topics(7).draw("a", 2))
    assert known.embed(made[:2]).shape == (2, DIMS)
    known.forget(made[:1])
    assert (known.vector(made[1]) == known.embed([made[1]])[0]).all()
