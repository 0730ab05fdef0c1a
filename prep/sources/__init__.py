"""List and read what a dataset is built from: folders, tables, arrays, COCO, YOLO, iterables."""
