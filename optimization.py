"""The learning-rate schedule and BERT's Adam with weight decay."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

ADAM_M = "adam_m"
ADAM_V = "adam_v"


def learning_rate_at(
    step: tf.Tensor,
    *,
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int,
) -> tf.Tensor:
    """Returns the learning rate: linear warm-up, then linear decay to 0.

    As released the decay counts from step 0, not from the end of the warm-up,
    so the rate falls a little when warm-up ends. Devlin et al. 2019, A.2.

    Args:
      step: int [], the number of updates made so far.
      init_lr: the peak.
      num_train_steps: steps until the rate is 0.
      num_warmup_steps: steps of warm-up; the first of them has rate 0.

    Returns:
      float32 [].
    """
    step = tf.cast(step, tf.float32)
    done = tf.minimum(step / float(num_train_steps), 1.0)
    learning_rate = init_lr * (1.0 - done)
    if num_warmup_steps:
        warmup = init_lr * (step / float(num_warmup_steps))
        learning_rate = tf.where(step < num_warmup_steps, warmup, learning_rate)
    return learning_rate


def create_optimizer(
    init_lr: float, num_train_steps: int, num_warmup_steps: int
) -> "AdamWeightDecayOptimizer":
    """Returns the optimizer of the release with its schedule.

    Args:
      init_lr: peak of the learning rate.
      num_train_steps: steps of the whole run.
      num_warmup_steps: steps of warm-up, 0 for none.

    Raises:
      ValueError: a number no run can have.
    """
    if num_train_steps < 1 or num_warmup_steps < 0 or not init_lr >= 0.0:
        raise ValueError(
            "Training needs at least 1 step, 0 or more warm-up steps and a "
            f"learning rate of at least 0; got {num_train_steps} steps, "
            f"{num_warmup_steps} of warm-up, learning rate {init_lr}."
        )
    return AdamWeightDecayOptimizer(
        functools.partial(
            learning_rate_at,
            init_lr=init_lr,
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
        )
    )


class AdamWeightDecayOptimizer:
    """Adam without bias correction, with decoupled weight decay and clipping.

    The released update of Devlin et al. 2019: gradients are scaled to a global
    norm of at most `clip_norm`; decay is added after Adam's ratio and so is not
    part of its moments (Loshchilov and Hutter 2019); `epsilon` is outside the
    square root. Every element of a variable moves at every step, embeddings
    without a token in the batch included.

    Args:
      learning_rate: maps the step, int64 [], to the learning rate, float32 [].
      weight_decay_rate: fraction of a weight taken off at learning rate 1.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the root of the second moment.
      exclude_from_weight_decay: regular expressions; variables whose name has
        a match do not decay.
      clip_norm: largest global norm of the gradient.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor],
        *,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] = (
            "LayerNorm",
            "layer_norm",
            "bias",
        ),
        clip_norm: float = 1.0,
    ):
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = tuple(exclude_from_weight_decay)
        self.clip_norm = clip_norm
        self.slots: dict[str, tf.Variable] = {}

    def build(self, variables: Mapping[str, tf.Variable]) -> None:
        """Creates `NAME/adam_m` and `NAME/adam_v` in `slots`, all zero.

        Args:
          variables: the variables to train, by their names in a checkpoint.
        """
        for name, variable in variables.items():
            for slot in (ADAM_M, ADAM_V):
                self.slots[f"{name}/{slot}"] = tf.Variable(
                    tf.zeros(variable.shape),
                    trainable=False,
                    name=f"{name}/{slot}".replace("/", "_"),
                )

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to the variable called `name`."""
        return not any(
            re.search(pattern, name)
            for pattern in self.exclude_from_weight_decay
        )

    def apply(
        self,
        variables: Mapping[str, tf.Variable],
        gradients: Mapping[str, tf.Tensor | None],
        step: tf.Tensor,
        is_finite: tf.Tensor | bool = True,
        extra_squared_norm: tf.Tensor | float = 0.0,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Updates `variables` and their slots in place.

        The update is one function compiled by XLA, which walks through memory
        once instead of once for every operation. Call this inside a
        `tf.function`, or every call compiles anew.

        Args:
          variables: what `build` was given, or a part of it.
          gradients: by the same names, dense float32 of the same shapes. A
            variable whose gradient is None stays as it is, slots included.
          step: int64 [], the number of updates made so far.
          is_finite: bool []; False leaves everything as it is.
          extra_squared_norm: float32 [], added to the sum of squares whose root
            is the norm.

        Returns:
          Whether the update was made, bool [] (False also when the norm is not
          finite), and the global norm before clipping, float32 [].
        """
        names = [n for n in variables if gradients.get(n) is not None]
        slots = self.slots

        @tf.function(jit_compile=True, autograph=False)
        def update(gradients, scale, learning_rate, is_finite):
            for name, gradient in zip(names, gradients, strict=True):
                self._update_one(
                    variables[name],
                    slots[f"{name}/{ADAM_M}"],
                    slots[f"{name}/{ADAM_V}"],
                    gradient,
                    scale,
                    learning_rate,
                    self.weight_decay_rate if self.decays(name) else 0.0,
                    is_finite,
                )

        gradients = [gradients[n] for n in names]
        # Outside: XLA would store the squares before it adds them up.
        half_squares = tf.add_n([tf.nn.l2_loss(g) for g in gradients])
        # Not below 0: rows of one token can cancel out to a rounding error.
        norm = tf.sqrt(tf.maximum(2.0 * half_squares + extra_squared_norm, 0.0))
        is_finite = tf.logical_and(is_finite, tf.math.is_finite(norm))
        # clip_norm / max(norm, clip_norm) is exactly 1 when not clipping.
        scale = self.clip_norm / tf.maximum(norm, self.clip_norm)
        update(gradients, scale, self.learning_rate(step), is_finite)
        return is_finite, norm

    def _update_one(
        self, variable, m, v, gradient, scale, learning_rate, decay, is_finite
    ):
        """One variable's update, unless `is_finite` is False."""
        # Two products with `gradient`, because XLA would store one that is
        # used twice: a pass over memory more.
        next_m = self.beta_1 * m + ((1.0 - self.beta_1) * scale) * gradient
        next_v = self.beta_2 * v + (
            (1.0 - self.beta_2) * tf.square(scale)
        ) * tf.square(gradient)
        ratio = next_m / (tf.sqrt(next_v) + self.epsilon)
        if decay:
            ratio += decay * variable
        m.assign(tf.where(is_finite, next_m, m))
        v.assign(tf.where(is_finite, next_v, v))
        variable.assign(
            tf.where(is_finite, variable - learning_rate * ratio, variable)
        )
