"""Names and shapes of the variables of models that are never allocated."""

import threading

import keras


def shapes_of(make_model):
    """{name in a checkpoint: shape} of the model that `make_model` returns."""
    shapes = {}

    def build():
        with keras.StatelessScope(initialize_variables=False):
            model = make_model()
        for variable in model.variables:
            # The first part is the model's own name.
            name = variable.path.partition("/")[2]
            shapes[name] = tuple(variable.shape)

    # Keras remembers, for each thread, what it has yet to allocate: that of a
    # thread which ends is forgotten.
    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    return shapes
